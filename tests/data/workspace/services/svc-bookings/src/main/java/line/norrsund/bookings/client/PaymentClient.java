package line.norrsund.bookings.client;

import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Takes money through svc-payments. */
@Component
public class PaymentClient {

    private final RestClient http;

    PaymentClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-payments").build();
    }

    /**
     * Authorises and captures in one go. The reference of the booking is the idempotency key, so a second try after a
     * time-out cannot block the card twice.
     */
    public void authoriseAndCapture(String reference, Price price, String token) {
        var payment = http.post().uri("/payments").header("Idempotency-Key", reference)
                .body(new PaymentOrder(price.amount(), price.currency(), token, reference))
                .retrieve().body(Payment.class);
        http.post().uri("/payments/{id}/capture", payment.paymentId()).retrieve().toBodilessEntity();
    }
}
