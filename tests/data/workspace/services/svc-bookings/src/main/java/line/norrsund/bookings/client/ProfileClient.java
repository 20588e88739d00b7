package line.norrsund.bookings.client;

import org.springframework.stereotype.Component;
import org.springframework.web.client.HttpClientErrorException;
import org.springframework.web.client.RestClient;

/** Completes travellers with what svc-passenger-profiles remembers of them. */
@Component
public class ProfileClient {

    private final RestClient http;

    ProfileClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-passenger-profiles").build();
    }

    /** Fills in date of birth and wishes; a profile that was erased leaves the traveller as typed. */
    public Traveller complete(Traveller typed) {
        if (typed.profileId() == null) {
            return typed;
        }
        try {
            return typed.with(http.get().uri("/profiles/{id}", typed.profileId()).retrieve().body(Profile.class));
        } catch (HttpClientErrorException.NotFound erased) {
            return typed.withoutProfile();
        }
    }
}
