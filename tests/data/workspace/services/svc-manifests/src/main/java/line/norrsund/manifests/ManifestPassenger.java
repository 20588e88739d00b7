package line.norrsund.manifests;

import java.time.LocalDate;
import java.time.Period;

/**
 * One person on the legal list.
 *
 * @param familyName as in the machine-readable zone of the travel document
 * @param givenNames all given names
 * @param nationality three letters
 * @param dateOfBirth decides the age band on the day of the voyage
 * @param sex F, M or X
 * @param specialCare help needed in an emergency, may be null
 */
public record ManifestPassenger(
        String familyName,
        String givenNames,
        String nationality,
        LocalDate dateOfBirth,
        String sex,
        String specialCare) {

    /** The age band on a day: infants are below one year, children below twelve, as the authority counts. */
    public AgeBand bandOn(LocalDate day) {
        int years = Period.between(dateOfBirth, day).getYears();
        if (years < 1) {
            return AgeBand.INFANT;
        }
        return years < 12 ? AgeBand.CHILD : AgeBand.ADULT;
    }
}
