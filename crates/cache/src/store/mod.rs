pub struct Budget; pub struct Cache; pub struct Verdict;
