package line.norrsund.manifests.client;

import java.util.Optional;
import java.util.UUID;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Copies the fields that the law wants from svc-passenger-profiles. */
@Component
public class ProfileSnapshots {

    private final RestClient http;

    ProfileSnapshots(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-passenger-profiles").build();
    }

    /** A snapshot, or nothing for travellers without a profile; then the gate's typing counts. */
    public Optional<Snapshot> take(UUID profileId) {
        return Optional.ofNullable(profileId)
                .map(id -> http.get().uri("/profiles/{id}/snapshot", id).retrieve().body(Snapshot.class));
    }
}
