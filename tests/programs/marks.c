/*
 * marks.c: named moments, from two threads, with names of every kind.
 *
 * In order: "start"; "load begin"; 30 x 71 by `load`, 10 of them freed; "load end" (20 zombies);
 * "work begin" twice (a phase within itself); 40 x 73 by `work`, all freed; "work end" twice;
 * from a thread "thread" with 5 x 79, kept; "" (empty); a name of 300 bytes 'n'; "Größe" (UTF-8);
 * 15 of the 20 zombies are freed; "end".
 * 12 marks. 75 blocks: 30 x 71, 40 x 73, 5 x 79; live at the end: 5 x 71, 5 x 79.
 */
#include "check.h"
#include "skinflint.h"

#include <pthread.h>

static void *loaded[30];

NOINLINE static void load(void)
{
    skinflint_mark("load begin");
    for (int i = 0; i < 30; i++)
        loaded[i] = must_malloc(71);
    for (int i = 0; i < 10; i++)
        free(loaded[i]);
    skinflint_mark("load end");
}

NOINLINE static void work(void)
{
    skinflint_mark("work begin");
    skinflint_mark("work begin");
    for (int i = 0; i < 40; i++) {
        void *block = must_malloc(73);
        free(block);
    }
    skinflint_mark("work end");
    skinflint_mark("work end");
}

NOINLINE static void *thread(void *unused)
{
    skinflint_mark("thread");
    for (int i = 0; i < 5; i++)
        must_malloc(79);
    return unused;
}

int main(void)
{
    char name[301];
    pthread_t id;
    memset(name, 'n', 300);
    name[300] = 0;
    skinflint_mark("start");
    load();
    work();
    CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
    CHECK(pthread_join(id, NULL) == 0);
    skinflint_mark("");
    skinflint_mark(name);
    memset(name, '?', 300); /* the name was copied */
    skinflint_mark("Gr\303\266\303\237e");
    for (int i = 10; i < 25; i++)
        free(loaded[i]);
    skinflint_mark("end");
    say("marks ok\n");
    return 0;
}
