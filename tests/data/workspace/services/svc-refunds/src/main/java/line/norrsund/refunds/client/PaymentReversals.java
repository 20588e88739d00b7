package line.norrsund.refunds.client;

import org.springframework.stereotype.Component;
import org.springframework.web.client.HttpClientErrorException;
import org.springframework.web.client.RestClient;

/** Asks svc-payments to send money back. */
@Component
public class PaymentReversals {

    private final RestClient http;

    PaymentReversals(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-payments").build();
    }

    /** One reversal for each refund; the refund's identifier is the idempotency key. */
    public void reverse(Refund refund) {
        try {
            http.post().uri("/payments/{id}/reversals", refund.paymentId())
                    .header("Idempotency-Key", refund.id().toString())
                    .body(new Reversal(refund.amount(), "refund")).retrieve().toBodilessEntity();
        } catch (HttpClientErrorException refused) {
            throw new ReversalRefused(refused.getStatusCode().value(), refused.getResponseBodyAsString());
        }
    }
}
