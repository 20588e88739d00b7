package line.norrsund.checkin.client;

import java.util.UUID;
import org.springframework.stereotype.Component;
import org.springframework.web.client.HttpClientErrorException;
import org.springframework.web.client.RestClient;

/** Puts persons on the passenger list of svc-manifests and takes them off again. */
@Component
public class ManifestClient {

    private final RestClient http;

    ManifestClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-manifests").build();
    }

    /** Adds one person; infants in arms are added as well, because every person counts. */
    public String add(UUID sailingId, Passenger person) {
        try {
            return http.post().uri("/manifests/{id}/passengers", sailingId)
                    .body(ManifestEntry.of(person)).retrieve().body(Added.class).entryId();
        } catch (HttpClientErrorException.Conflict sealed) {
            throw new ManifestSealed(sailingId);
        }
    }

    public void remove(UUID sailingId, String entryId) {
        http.delete().uri("/manifests/{id}/passengers/{entry}", sailingId, entryId).retrieve().toBodilessEntity();
    }
}
