// Native memory by all other ways: raw memory, packers of zlib's, a mapped file, and arenas where Java has them (from 22 on).
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.Deflater;
import sun.misc.Unsafe;

public class Natives {
    static final List<Object> kept = new ArrayList<>();
    static final int FILE = 8 << 20;

    static void raw(Unsafe unsafe) {
        kept.add(unsafe.allocateMemory(24_000));
    }

    static void pack() {
        kept.add(new Deflater());
    }

    static void map() throws Exception {
        Path path = Files.createTempFile(Path.of("."), "planted", "");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(FILE);
            kept.add(file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, FILE).load());
        }
    }

    static void segment(Method allocate, Object arena) throws Exception {
        kept.add(allocate.invoke(arena, 32_000L, 16L));
    }

    // Reports whether there are arenas.
    static boolean segments() throws Exception {
        if (Runtime.version().feature() < 22) return false;
        Class<?> of = Class.forName("java.lang.foreign.Arena");
        Object arena = of.getMethod("global").invoke(null);
        Method allocate = of.getMethod("allocate", long.class, long.class);
        for (int n = 0; n < 300; n++) segment(allocate, arena);
        return true;
    }

    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        for (int n = 0; n < 500; n++) raw(unsafe);
        for (int n = 0; n < 60; n++) pack();
        map();
        boolean hasSegments = segments();
        System.out.println("planted Natives.raw 18 " + 500 * 24_000);
        // Of zlib: the window twice, links and heads of chains (32 Ki of two bytes each), four bytes for each of 16 Ki literals; its state.
        System.out.println("planted Natives.pack 22 " + 60 * (4 * 65_536 + 5_952));
        System.out.println("planted Natives.map 29 " + FILE);
        if (hasSegments) System.out.println("planted Natives.segment 34 " + 300 * 32_000);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
