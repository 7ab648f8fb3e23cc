// A class that Holders loads under forty names.

import java.nio.ByteBuffer;

public class Again00 {
    public static ByteBuffer take() {
        return ByteBuffer.allocateDirect(10264);
    }
}
