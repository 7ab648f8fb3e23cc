/*
 * skinflint.h: names for moments, so that a report can say what happened between them.
 *
 *     #include "skinflint.h"
 *
 *     skinflint_mark("load begin");
 *     load();
 *     skinflint_mark("load end");       // what "load" left behind is a zombie of that phase
 *
 * H1  Nothing has to be linked: without the recorder a mark is one load and one branch.
 * H2  A mark allocates nothing in the program and may be called from any thread, also before main
 *     and while the program exits. The name is copied; it may be freed after the call.
 * H3  C and C++, gcc and clang, with or without -fPIE.
 *
 * Not here: what marks are good for (docs), marks by signal (`skinflint record --help`).
 */
#ifndef SKINFLINT_H
#define SKINFLINT_H

#if !defined(__linux__) || !defined(__x86_64__)
#error "Skinflint records on Linux x86-64 only"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Marks a moment. `name`: any bytes up to a NUL; UTF-8 is shown as it is. "NAME begin" and
 * "NAME end" make a phase.
 *
 * The recorder exports a function `skinflint_mark`. A weak definition of the same name here would
 * hide it, since the executable comes before preloaded objects in the order of lookup; so this
 * wrapper has another name in the assembler, and refers to the recorder's weakly.
 */
static __inline__ void skinflint_mark(const char *name) __asm__("skinflint_mark_if_recorded_")
    __attribute__((unused));

static __inline__ void skinflint_mark(const char *name)
{
    void (*recorder)(const char *);
    /*
     * Through the GOT, also where the compiler would not: in a position-dependent executable the
     * linker answers a direct weak reference with 0 for good, and marks would be lost in silence.
     */
    __asm__(".weak skinflint_mark\n\tmovq skinflint_mark@GOTPCREL(%%rip), %0" : "=r"(recorder));
    if (recorder)
        recorder(name);
}

#ifdef __cplusplus
}
#endif

#endif /* SKINFLINT_H */
