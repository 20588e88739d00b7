package line.norrsund.loyalty;

import java.util.Set;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;
import org.springframework.web.client.RestClient;

/** Gives and takes the island tier by postcode, once a night. */
@Component
class IslandTierJob {

    private static final Set<String> ISLANDS = Set.of("6091", "6092", "6096");

    private final MemberRepository members;
    private final RestClient profiles;

    IslandTierJob(MemberRepository members, RestClient.Builder builder) {
        this.members = members;
        this.profiles = builder.baseUrl("http://svc-passenger-profiles").build();
    }

    /** Reads the postcode of each member whose profile changed since yesterday. */
    @Scheduled(cron = "0 30 2 * * *")
    void settle() {
        for (var member : members.changedSinceYesterday()) {
            var profile = profiles.get().uri("/profiles/{id}", member.profileId()).retrieve().body(Profile.class);
            members.save(ISLANDS.contains(profile.postcode()) ? member.islander() : member.byPoints());
        }
    }
}
