pub struct Discardable; pub struct Discards;
