package line.norrsund.refunds.client;

import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Takes back Tern Club points with svc-loyalty. */
@Component
public class LoyaltyClient {

    private final RestClient http;

    LoyaltyClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-loyalty").build();
    }

    /** Does nothing for travellers without a card or before they have travelled. */
    public void clawBack(Refund refund) {
        refund.memberId().filter(member -> refund.pointsEarned() > 0).ifPresent(member ->
                http.post().uri("/members/{id}/clawbacks", member)
                        .body(new Clawback(refund.pointsEarned(), refund.id())).retrieve().toBodilessEntity());
    }
}
