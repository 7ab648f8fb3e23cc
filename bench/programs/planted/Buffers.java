// Direct buffers that a cache keeps, made by several threads.
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

public class Buffers {
    static final Map<Integer, ByteBuffer> kept = new ConcurrentHashMap<>();

    static void planted(int n) {
        kept.put(n, ByteBuffer.allocateDirect(16384));
    }

    public static void main(String[] arguments) throws Exception {
        Thread[] workers = new Thread[8];
        for (int at = 0; at < workers.length; at++) {
            int first = at * 250;
            workers[at] = new Thread(() -> {
                for (int n = 0; n < 250; n++) planted(first + n);
            });
            workers[at].start();
        }
        for (Thread worker : workers) worker.join();
        System.out.println("planted Buffers.planted 10 " + 2000 * 16384);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
