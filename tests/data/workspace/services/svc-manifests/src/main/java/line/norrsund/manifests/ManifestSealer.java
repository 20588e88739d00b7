package line.norrsund.manifests;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.PrivateKey;
import java.security.Signature;
import java.time.Clock;
import java.util.HexFormat;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Service;

/** Closes passenger lists ten minutes before departure and signs them. */
@Service
class ManifestSealer {

    private final ManifestRepository repository;
    private final VesselLimits limits;
    private final PrivateKey terminalKey;
    private final Clock clock;

    ManifestSealer(ManifestRepository repository, VesselLimits limits, PrivateKey terminalKey, Clock clock) {
        this.repository = repository;
        this.limits = limits;
        this.terminalKey = terminalKey;
        this.clock = clock;
    }

    /** Seals every list that is due, once a minute. */
    @Scheduled(cron = "0 * * * * *")
    void sealDue() throws GeneralSecurityException {
        for (var manifest : repository.dueBefore(clock.instant().plusSeconds(600))) {
            seal(manifest);
        }
    }

    /**
     * Signs the canonical bytes of the list.
     *
     * @throws TooFewLifejackets when there are more children than lifejackets for children on board
     */
    Seal seal(Manifest manifest) throws GeneralSecurityException {
        if (manifest.children() + manifest.infants() > limits.childLifejackets(manifest.vesselCode())) {
            throw new TooFewLifejackets(manifest.sailingId());
        }
        byte[] canonical = manifest.canonicalBytes();
        var signature = Signature.getInstance("Ed25519");
        signature.initSign(terminalKey);
        signature.update(canonical);
        var digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(canonical));
        return repository.sealed(manifest, digest, signature.sign());
    }
}
