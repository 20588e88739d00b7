package line.norrsund.freight;

import java.util.Map;
import java.util.Set;

/** Whether a dangerous substance may travel on a sailing, after the tables of the IMDG code. */
class DangerousGoodsCheck {

    /** Classes that no ship with more than twenty-five passengers may carry on any deck. */
    private static final Set<String> NEVER_WITH_PASSENGERS = Set.of("1.1", "2.3", "5.2", "6.2", "7");

    private final Map<String, Substance> substances;

    DangerousGoodsCheck(Map<String, Substance> substances) {
        this.substances = substances;
    }

    /**
     * The stowage category of a substance.
     *
     * @throws Refused for unknown UN numbers and for classes that may not travel with passengers
     */
    char stowageCategory(String unNumber, int passengersBooked) {
        var substance = substances.get(unNumber);
        if (substance == null) {
            throw new Refused("unknown UN number " + unNumber);
        }
        if (passengersBooked > 25 && NEVER_WITH_PASSENGERS.contains(substance.hazardClass())) {
            throw new Refused("class " + substance.hazardClass() + " may not travel with passengers");
        }
        return substance.category();
    }
}
