# The gawk workload: counts words and pairs of words of a text, builds strings, sorts.
{
    for (i = 1; i <= NF; i++) {
        count[$i]++
        if (i > 1) pairs[$(i - 1), $i]++
    }
    lines[NR] = toupper(substr($0, 1, 20)) ":" NF
}
END {
    n = asorti(count, words)
    for (i = 1; i <= n; i++) printf "%s %d\n", words[i], count[words[i]]
    n = asort(lines)
    print n, lines[1], lines[n], length(pairs)
}
