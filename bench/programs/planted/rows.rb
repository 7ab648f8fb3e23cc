# Rows with texts that are kept in a hash, which grows by the same line: entries of 24 bytes and their numbers, for 32,768 rows.
KEPT = {}
def planted(n)
  KEPT[n] = "x" * 1000
end
20_000.times { |n| planted(n) }
$stdout.syswrite("planted planted 4 #{20_000 * 1001} #{32_768 * 24 + 65_536 * 4}\n")
Process.kill(:KILL, Process.pid)
