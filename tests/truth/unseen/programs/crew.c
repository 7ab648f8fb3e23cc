/* A control: two threads take tasks from a ring and put results into another; each task is made by one thread and released by
 * the other. There are never more than the ring holds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { SLOTS = 1024, TASKS = 60000, BYTES = 8192 };
struct task { unsigned number; unsigned char data[BYTES - 4]; };
static struct task *ring[SLOTS];
static unsigned made, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned long sum;

static void *work(void *unused)
{
    for (unsigned n = 0; n < TASKS; n++) {
        pthread_mutex_lock(&lock);
        while (made == n)
            pthread_cond_wait(&changed, &lock);
        struct task *t = ring[n % SLOTS];
        done = n + 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
        sum += t->data[t->number % sizeof t->data];
        free(t);
    }
    return NULL;
}

int main(void)
{
    pthread_t worker;
    pthread_create(&worker, NULL, work, NULL);
    for (unsigned n = 0; n < TASKS; n++) {
        struct task *t = malloc(sizeof *t);
        t->number = n;
        memset(t->data, n, sizeof t->data);
        pthread_mutex_lock(&lock);
        while (n - done == SLOTS)
            pthread_cond_wait(&changed, &lock);
        ring[n % SLOTS] = t;
        made = n + 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(worker, NULL);
    printf("%lu\n", sum);
    return 0;
}
