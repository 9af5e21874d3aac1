/// Carries a value out of a lock's closure on the thread that took it in.
struct Unchecked<T>: @unchecked Sendable { var value: T }
