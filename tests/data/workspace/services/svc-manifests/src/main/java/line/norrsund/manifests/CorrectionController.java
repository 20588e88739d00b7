package line.norrsund.manifests;

import java.util.UUID;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.*;

/** Corrections beside a sealed list; see the runbook. */
@RestController
class CorrectionController {

    private final Corrections corrections;

    CorrectionController(Corrections corrections) {
        this.corrections = corrections;
    }

    /** Needs two officers with different employee numbers. */
    @PostMapping("/manifests/{sailingId}/corrections")
    @ResponseStatus(HttpStatus.CREATED)
    void correct(@PathVariable UUID sailingId, @RequestBody Correction correction) {
        if (correction.firstOfficer().equals(correction.secondOfficer())) {
            throw new OneOfficerOnly(correction.firstOfficer());
        }
        corrections.record(sailingId, correction);
    }
}
