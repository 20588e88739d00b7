package line.norrsund.bookings.client;

import java.util.UUID;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Reads quotes from svc-fares. */
@Component
public class FareClient {

    private final RestClient http;

    FareClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-fares").build();
    }

    /** A quote, which must not be older than thirty minutes. */
    public Quote quote(UUID quoteId) {
        var quote = http.get().uri("/quotes/{id}", quoteId).retrieve().body(Quote.class);
        if (quote == null || quote.lapsed()) {
            throw new QuoteLapsed(quoteId);
        }
        return quote;
    }
}
