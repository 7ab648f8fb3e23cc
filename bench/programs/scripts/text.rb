# Words and Markdown by a small generator of numbers: the same in every run.
class Words
  LIST = %w[page span heap arena slop block stack frame ring ticket trace ledger class bytes holder leak peak idle purge map].freeze

  def initialize = @state = 7

  def number(below)
    @state = (@state * 1103515245 + 12345) % 2147483648
    (@state >> 8) % below
  end

  def words(count) = Array.new(count) { LIST[number(LIST.size)] }.join(" ")
end
