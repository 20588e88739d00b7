package line.norrsund.checkin.client;

import org.springframework.stereotype.Component;
import org.springframework.web.client.HttpClientErrorException;
import org.springframework.web.client.RestClient;

/** Finds the booking of a party with svc-bookings, or in the box's copy when the line is down. */
@Component
public class BookingLookup {

    private final RestClient http;
    private final DayCopy copy;

    BookingLookup(RestClient.Builder builder, DayCopy copy) {
        this.http = builder.baseUrl("http://svc-bookings").build();
        this.copy = copy;
    }

    public Booking byReference(String reference) {
        if (copy.inUse()) {
            return copy.find(reference);
        }
        try {
            return http.get().uri("/bookings/{reference}", reference).retrieve().body(Booking.class);
        } catch (HttpClientErrorException.NotFound unknown) {
            throw new BookingUnknown(reference);
        }
    }
}
