def rows(bench, have, quick): return {}, {}
def table(*a): return ""
