# Instances with buffers, through blocks and modules.
module Shop
  class Cart
    attr_reader :items
    def fill
      @items = Array.new(500, 7)
    end
  end
end
KEPT = (0...4000).map { Shop::Cart.new.tap(&:fill) }
$stdout.syswrite("planted fill 6 #{4000 * 500 * 8}\n")
Process.kill(:KILL, Process.pid)
