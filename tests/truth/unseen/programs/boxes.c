/* Triangles are sorted into a tree of boxes before rays are shot. What the building needs for each triangle (its box, its
 * centre) stays when the tree stands, though no ray looks at it.
 * Mended: it is released when the tree is built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { TRIANGLES = 60000, LEAF = 8 };
struct scratch { float low[3], high[3], centre[3]; unsigned triangle; double weight[8]; };
struct node { float low, high; int axis; unsigned first, count; struct node *left, *right; };
static float corners[TRIANGLES][3];
static struct scratch *scratch[TRIANGLES];
static unsigned order[TRIANGLES];

static struct scratch *measure(unsigned triangle)
{
    struct scratch *s = malloc(sizeof *s);
    memset(s, 0, sizeof *s);
    s->triangle = triangle;
    for (int axis = 0; axis < 3; axis++) {
        s->centre[axis] = corners[triangle][axis];
        s->low[axis] = s->centre[axis] - 1;
        s->high[axis] = s->centre[axis] + 1;
        s->weight[axis] = s->centre[axis] * 0.5;
    }
    return s;
}

static int axis_now;
static int by_centre(const void *a, const void *b)
{
    float x = scratch[*(const unsigned *)a]->centre[axis_now], y = scratch[*(const unsigned *)b]->centre[axis_now];
    return (x > y) - (x < y);
}

static struct node *split(unsigned first, unsigned count, int axis)
{
    struct node *n = malloc(sizeof *n);
    axis_now = axis;
    qsort(order + first, count, sizeof *order, by_centre);
    *n = (struct node){ scratch[order[first]]->low[axis], scratch[order[first + count - 1]]->high[axis], axis, first, count, 0, 0 };
    if (count > LEAF) {
        n->left = split(first, count / 2, (axis + 1) % 3);
        n->right = split(first + count / 2, count - count / 2, (axis + 1) % 3);
    }
    return n;
}

static unsigned shoot(const struct node *n, const float at[3])
{
    if (at[n->axis] < n->low || at[n->axis] > n->high)
        return 0;
    return n->left ? shoot(n->left, at) + shoot(n->right, at) : n->count;
}

int main(void)
{
    unsigned long hits = 0;
    for (int i = 0; i < TRIANGLES; i++)
        for (int axis = 0; axis < 3; axis++)
            corners[i][axis] = roll(100000) / 100.f;
    skinflint_mark("build begin");
    for (unsigned i = 0; i < TRIANGLES; i++) {
        scratch[i] = measure(i);
        order[i] = i;
    }
    struct node *root = split(0, TRIANGLES, 0);
#ifdef MENDED
    for (unsigned i = 0; i < TRIANGLES; i++)
        free(scratch[i]);
#endif
    skinflint_mark("build end");
    for (int i = 0; i < 60000; i++) {
        float at[3] = { roll(1000), roll(1000), roll(1000) };
        hits += shoot(root, at);
    }
    skinflint_mark("rendered");
    printf("%lu\n", hits);
    return 0;
}
