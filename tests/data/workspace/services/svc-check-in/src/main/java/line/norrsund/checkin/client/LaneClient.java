package line.norrsund.checkin.client;

import java.util.UUID;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Asks svc-vehicle-lanes for a place on the quay. */
@Component
public class LaneClient {

    private final RestClient http;

    LaneClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-vehicle-lanes").build();
    }

    /** A lane for the measured vehicle; 409 means that the gate sends it to the overflow yard. */
    public LaneAssignment assign(UUID sailingId, MeasuredVehicle vehicle) {
        return http.post().uri("/lane-assignments").body(LaneRequest.of(sailingId, vehicle))
                .retrieve().body(LaneAssignment.class);
    }

    public void release(LaneAssignment assignment) {
        http.delete().uri("/lane-assignments/{id}", assignment.assignmentId()).retrieve().toBodilessEntity();
    }
}
