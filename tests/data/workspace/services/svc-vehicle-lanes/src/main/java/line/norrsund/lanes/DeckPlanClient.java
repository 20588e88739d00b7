package line.norrsund.lanes;

import org.springframework.cache.annotation.Cacheable;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Reads deck plans from svc-vessels; they change once in a dry-docking. */
@Component
class DeckPlanClient {

    private final RestClient http;

    DeckPlanClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-vessels").build();
    }

    @Cacheable("deck-plans")
    DeckPlan of(String vesselCode) {
        return http.get().uri("/vessels/{code}/deck-plan", vesselCode).retrieve().body(DeckPlan.class);
    }
}
