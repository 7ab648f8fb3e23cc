# The perl workload: hashes of arrays, string building, regular expressions, sorting.
# Own generator, fixed hash seed (PERL_HASH_SEED=0): the same output in every run.
use strict;
use warnings;

my $state = 20110805;
sub draw { my ($below) = @_; $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $below; }

my ($rounds, $records) = (shift // 2, shift // 60_000);
my @kept;
for my $round (1 .. $rounds) {
    my (%by_tag, @lines);
    for my $number (1 .. $records) {
        my $name = sprintf('user-%05d', draw(100_000));
        my @tags = map { 'tag' . draw(300) } 1 .. 5;
        push @{ $by_tag{$_} }, $name for @tags;
        push @lines, join(':', $name, join(',', @tags));
    }
    push @kept, \%by_tag;
    my %words;
    for my $line (@lines) {
        my ($name, $tags) = $line =~ /^(\S+):(.*)$/ or die "bad line\n";
        $words{$_}++ for split /,/, $tags;
    }
    my @top = sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words;
    my $longest = (sort { @{ $by_tag{$b} } <=> @{ $by_tag{$a} } || $a cmp $b } keys %by_tag)[0];
    print "$round $top[0] $words{$top[0]} $longest ", scalar(keys %by_tag), "\n";
}
