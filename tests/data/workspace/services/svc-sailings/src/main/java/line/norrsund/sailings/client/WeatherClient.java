package line.norrsund.sailings.client;

import java.time.Duration;
import org.springframework.stereotype.Component;
import org.springframework.web.client.ResourceAccessException;
import org.springframework.web.client.RestClient;

/** Asks svc-weather-watch for a verdict. */
@Component
public class WeatherClient {

    static final Duration PATIENCE = Duration.ofSeconds(3);

    private final RestClient http;

    WeatherClient(RestClient.Builder builder) {
        this.http = builder.baseUrl("http://svc-weather-watch").build();
    }

    /** The verdict; no answer within three seconds counts as caution, never as go. */
    public Assessment assess(Sailing sailing) {
        try {
            return http.get().uri("/assessments/{route}?vesselCode={v}&departure={d}",
                    sailing.route(), sailing.vesselCode(), sailing.expectedDeparture())
                    .retrieve().body(Assessment.class);
        } catch (ResourceAccessException silent) {
            return Assessment.caution("svc-weather-watch did not answer");
        }
    }
}
