// Holders of native memory in all ways in which Java calls Java, each predicted by hand.
//
// Each way makes COUNT direct buffers of a size of its own, on the line that ends with "// HOLD way". A direct buffer of N bytes
// asks malloc for N, if that is a multiple of eight, its memory is not aligned to pages, and nothing is tracked. Prints a line for each way: its name, the
// size that is asked for, and how many times.
//
// Not here: what a recorder should make of it (faces/cli/tests/python/java.rs).

import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import java.util.zip.Deflater;

public class Holders {
    static final int COUNT = 40;
    static final List<Object> held = new ArrayList<>();
    static final List<String> ways = new ArrayList<>();

    static void way(String name, int bytes) {
        ways.add(name + " " + bytes + " " + COUNT);
    }

    static void plain() {
        for (int n = 0; n < COUNT; n++) {
            held.add(ByteBuffer.allocateDirect(10008)); // HOLD plain
        }
        for (int n = 0; n < COUNT; n++) {
            held.add(
                ByteBuffer.allocateDirect(10024)); // HOLD plain_again
        }
    }

    static void lambda() {
        IntStream.range(0, COUNT).forEach(n -> held.add(ByteBuffer.allocateDirect(10040))); // HOLD lambda
    }

    static class Store {
        static final ByteBuffer[] rows = new ByteBuffer[COUNT];
        final ByteBuffer row;

        static {
            for (int n = 0; n < COUNT; n++) {
                rows[n] = ByteBuffer.allocateDirect(10056); // HOLD initializer
            }
        }

        Store(int bytes) {
            row = ByteBuffer.allocateDirect(bytes); // HOLD constructor
        }
    }

    interface Maker {
        default ByteBuffer make(int bytes) {
            return ByteBuffer.allocateDirect(bytes); // HOLD inherited
        }
    }

    static class Made implements Maker {}

    static class Rows implements Iterable<ByteBuffer> {
        public Iterator<ByteBuffer> iterator() {
            return new Iterator<>() {
                int left = COUNT;

                public boolean hasNext() {
                    return left > 0;
                }

                public ByteBuffer next() {
                    left--;
                    return ByteBuffer.allocateDirect(10104); // HOLD iterated
                }
            };
        }
    }

    static void caught() {
        for (int n = 0; n < COUNT; n++) {
            try {
                try {
                    throw new IllegalStateException();
                } finally {
                    held.add(ByteBuffer.allocateDirect(10120)); // HOLD finally
                }
            } catch (IllegalStateException exception) {
                held.add(ByteBuffer.allocateDirect(10136)); // HOLD caught
            }
        }
    }

    public static void reflected() {
        held.add(ByteBuffer.allocateDirect(10152)); // HOLD reflected
    }

    static void handled(int bytes) {
        held.add(ByteBuffer.allocateDirect(bytes)); // HOLD handled
    }

    static void threaded() {
        Runnable run = () -> {
            ByteBuffer row = ByteBuffer.allocateDirect(10184); // HOLD threaded
            synchronized (held) {
                held.add(row);
            }
        };
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < COUNT; n++) {
            threads.add(new Thread(run));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            join(thread);
        }
    }

    static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException exception) {
            throw new IllegalStateException(exception);
        }
    }

    static void deep(int depth) {
        if (depth > 0) {
            deep(depth - 1);
            return;
        }
        held.add(ByteBuffer.allocateDirect(10200)); // HOLD deep
    }

    // What is hot is compiled, small functions into those that call them.
    static ByteBuffer small(int bytes) {
        return ByteBuffer.allocateDirect(bytes); // HOLD inlined
    }

    static ByteBuffer smaller(int bytes) {
        return small(bytes);
    }

    static long hot(int bytes, int count, boolean hold) {
        long sum = 0;
        for (int n = 0; n < count; n++) {
            ByteBuffer row = smaller(bytes);
            sum += row.capacity();
            if (hold) {
                held.add(row);
            }
        }
        return sum;
    }

    static int replaced() {
        int sum = 0;
        // Long enough to be compiled while it runs.
        for (int n = 0; n < 300_000; n++) {
            sum = sum * 31 + n;
        }
        for (int n = 0; n < COUNT; n++) {
            held.add(ByteBuffer.allocateDirect(10232)); // HOLD replaced
        }
        return sum;
    }

    interface Shape {
        ByteBuffer make(int bytes);
    }

    // Called by a table: three classes are too many to be put into the caller.
    static final Shape[] SHAPES = {
        bytes -> ByteBuffer.allocateDirect(bytes + 1),
        bytes -> ByteBuffer.allocateDirect(bytes + 2),
        bytes -> ByteBuffer.allocateDirect(bytes + 3),
        bytes -> ByteBuffer.allocateDirect(bytes), // HOLD virtual
    };

    static void virtual(int bytes, int count, boolean hold) {
        for (int n = 0; n < count; n++) {
            ByteBuffer row = SHAPES[hold ? 3 : n & 3].make(bytes);
            if (hold) {
                held.add(row);
            }
        }
    }

    // Classes of loaders that are given up: their methods' addresses are used again.
    static class Given extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    static void again() throws Exception {
        byte[] bytes;
        try (var in = Holders.class.getResourceAsStream("Again00.class")) {
            bytes = in.readAllBytes();
        }
        for (int n = 0; n < COUNT; n++) {
            byte[] other = bytes.clone();
            byte[] name = String.format("Again%02d", n).getBytes();
            for (int at = 0; at + 7 <= other.length; at++) {
                if (new String(other, at, 7, "ISO-8859-1").equals("Again00")) {
                    System.arraycopy(name, 0, other, at, 7);
                }
            }
            held.add(new Given().define(other).getMethod("take").invoke(null));
            if (n % 4 == 3) {
                System.gc();
            }
        }
    }

    static void mapped() throws Exception {
        Path path = Files.createTempFile("holders", "");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(1_234_567);
            MappedByteBuffer map = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1_234_567); // HOLD mapped
            held.add(map);
        }
        Files.delete(path);
    }

    static void deflated() {
        for (int n = 0; n < COUNT; n++) {
            held.add(new Deflater()); // HOLD deflated
        }
    }

    public static void main(String[] arguments) throws Throwable {
        plain();
        way("plain", 10008);
        way("plain_again", 10024);
        lambda();
        way("lambda", 10040);
        held.add(Store.rows);
        way("initializer", 10056);
        for (int n = 0; n < COUNT; n++) {
            held.add(new Store(10072));
        }
        way("constructor", 10072);
        Maker made = new Made();
        for (int n = 0; n < COUNT; n++) {
            held.add(made.make(10088));
        }
        way("inherited", 10088);
        for (ByteBuffer row : new Rows()) {
            held.add(row);
        }
        way("iterated", 10104);
        caught();
        way("finally", 10120);
        way("caught", 10136);
        for (int n = 0; n < COUNT; n++) {
            Holders.class.getMethod("reflected").invoke(null);
        }
        way("reflected", 10152);
        MethodHandle handle = MethodHandles.lookup()
            .findStatic(Holders.class, "handled", MethodType.methodType(void.class, int.class));
        for (int n = 0; n < COUNT; n++) {
            handle.invokeExact(10168);
        }
        way("handled", 10168);
        threaded();
        way("threaded", 10184);
        for (int n = 0; n < COUNT; n++) {
            deep(n * 20);
        }
        way("deep", 10200);
        for (int round = 0; round < 30; round++) {
            hot(16, 1000, false);
        }
        hot(10216, COUNT, true);
        way("inlined", 10216);
        held.add(replaced());
        way("replaced", 10232);
        for (int round = 0; round < 30; round++) {
            virtual(20, 1000, false);
        }
        virtual(10248, COUNT, true);
        way("virtual", 10248);
        again();
        way("again", 10264);
        mapped();
        deflated();
        for (String way : ways) {
            System.out.println(way);
        }
        System.out.println(held.size());
    }
}
