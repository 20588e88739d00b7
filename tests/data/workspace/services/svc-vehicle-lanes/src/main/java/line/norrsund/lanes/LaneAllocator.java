package line.norrsund.lanes;

import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/** Chooses a lane for a vehicle: the fullest one in which it still fits. See decision 0011. */
class LaneAllocator {

    static final double MAX_HEEL_DEGREES = 2.0;
    static final int CAMPER_RESERVE_CM = 30;

    private final HeelModel heel;

    LaneAllocator(HeelModel heel) {
        this.heel = heel;
    }

    /** The lane, or empty when the vehicle has to wait in the overflow yard. */
    Optional<Lane> choose(Vehicle vehicle, List<Lane> lanes) {
        int needed = vehicle.lengthCm() + (vehicle.isCamper() ? CAMPER_RESERVE_CM : 0);
        return lanes.stream()
                .filter(lane -> !lane.closed() && lane.freeCm() >= needed)
                .filter(lane -> lane.clearHeightCm() >= vehicle.heightCm())
                .filter(lane -> !vehicle.isElectric() || lane.besideDrencher())
                .filter(lane -> Math.abs(heel.after(lane, vehicle)) <= MAX_HEEL_DEGREES)
                .min(Comparator.comparingInt(lane -> lane.freeCm() - needed));
    }
}
