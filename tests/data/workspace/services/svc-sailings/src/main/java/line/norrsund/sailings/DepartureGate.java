package line.norrsund.sailings;

import line.norrsund.sailings.client.ManningClient;
import line.norrsund.sailings.client.WeatherClient;
import org.springframework.stereotype.Component;

/** Everything that must be true before the lines are cast off. */
@Component
class DepartureGate {

    private final WeatherClient weather;
    private final ManningClient manning;
    private final SealedManifests sealed;

    DepartureGate(WeatherClient weather, ManningClient manning, SealedManifests sealed) {
        this.weather = weather;
        this.manning = manning;
        this.sealed = sealed;
    }

    /**
     * Checks manifest, manning and weather, in this order, and names the first that fails. The sealed manifests are
     * known from the event manifest-sealed; svc-manifests is not called.
     */
    void require(Sailing sailing) {
        if (!sealed.contains(sailing.id())) {
            throw new NotReady("the manifest is not sealed");
        }
        var check = manning.check(sailing.id());
        if (!check.sufficient()) {
            throw new NotReady("ranks missing: " + String.join(", ", check.missing()));
        }
        if (weather.assess(sailing).verdict() == Verdict.NO_GO && !sailing.overridden()) {
            throw new NotReady("weather is no-go and the master has not overridden it");
        }
    }
}
