package line.norrsund.sailings;

import java.util.UUID;
import org.springframework.security.access.prepost.PreAuthorize;
import org.springframework.web.bind.annotation.*;

/** The duty officer's two buttons. */
@RestController
@RequestMapping("/sailings/{sailingId}")
@PreAuthorize("hasRole('duty-officer')")
class DisruptionController {

    private final Disruptions disruptions;

    DisruptionController(Disruptions disruptions) {
        this.disruptions = disruptions;
    }

    @PostMapping("/delay")
    Sailing delay(@PathVariable UUID sailingId, @RequestBody DelayNotice notice) {
        return disruptions.announceDelay(sailingId, notice);
    }

    @PostMapping("/cancellation")
    Sailing cancel(@PathVariable UUID sailingId, @RequestBody CancellationNotice notice) {
        return disruptions.cancelSailing(sailingId, notice);
    }
}
