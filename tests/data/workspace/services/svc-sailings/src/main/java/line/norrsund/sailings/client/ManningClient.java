package line.norrsund.sailings.client;

import java.util.UUID;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Asks svc-crew-rosters whether a sailing has minimum safe manning. */
@Component
public class ManningClient {

    private final RestClient http;

    ManningClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-crew-rosters").build();
    }

    public ManningCheck check(UUID sailingId) {
        return http.get().uri("/manning-checks/{id}", sailingId).retrieve().body(ManningCheck.class);
    }
}
