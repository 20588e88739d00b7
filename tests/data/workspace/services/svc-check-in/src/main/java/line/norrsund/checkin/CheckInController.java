package line.norrsund.checkin;

import java.util.List;
import java.util.UUID;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.*;

/** Door for tablets, kiosks and the queues of the quay boxes. */
@RestController
class CheckInController {

    private final CheckInService service;

    CheckInController(CheckInService service) {
        this.service = service;
    }

    /** Checks in a party, whole or in part. */
    @PostMapping("/check-ins")
    @ResponseStatus(HttpStatus.CREATED)
    CheckIn checkIn(@RequestHeader("Idempotency-Key") String key, @RequestBody CheckInRequest request) {
        return service.checkIn(key, request);
    }

    @DeleteMapping("/check-ins/{id}")
    @ResponseStatus(HttpStatus.NO_CONTENT)
    void undo(@PathVariable UUID id) {
        service.undo(id);
    }

    @GetMapping("/check-ins")
    List<CheckIn> list(@RequestParam UUID sailingId, @RequestParam(defaultValue = "false") boolean missing) {
        return missing ? service.incomplete(sailingId) : service.all(sailingId);
    }

    /** Takes what a quay box queued without a network; conflicts are part of the answer and stop nothing. */
    @PostMapping("/offline-batches")
    @ResponseStatus(HttpStatus.MULTI_STATUS)
    List<Outcome> replay(@RequestBody List<CheckInRequest> batch) {
        return batch.stream().map(service::replay).toList();
    }
}
