package line.norrsund.checkin;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.List;

/**
 * Check-ins taken on a quay box while the line is down.
 *
 * <p>A row is forced to disk before the tablet turns green. Rows leave the file only when the shore has answered.
 */
class OfflineCheckInQueue {

    static final Duration LIMIT = Duration.ofHours(4);
    static final int BATCH = 500;

    private final Path file;
    private final Instant lineLost;

    OfflineCheckInQueue(Path file, Instant lineLost) {
        this.file = file;
        this.lineLost = lineLost;
    }

    /** Appends a check-in; refuses when the line has been down for more than four hours. */
    void take(CheckInRequest request, Instant now) {
        if (Duration.between(lineLost, now).compareTo(LIMIT) > 0) {
            throw new OfflineTooLong(lineLost);
        }
        try (var channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            channel.write(request.encoded());
            channel.force(true);
        } catch (IOException full) {
            throw new UncheckedIOException(full);
        }
    }

    /** The oldest rows, at most one batch; the order is the one in which parties drove up. */
    List<CheckInRequest> nextBatch() {
        return QueueFile.read(file).limit(BATCH).toList();
    }
}
