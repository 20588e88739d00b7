/** A class that was never finished. */
public class Capstan {

    /** Turns until told otherwise. */
    void turn() {
        while (true) {
            heave(;
    }

    int speed( { return 3;
