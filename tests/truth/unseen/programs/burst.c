/* A control: every second a chart is drawn from ten large blocks, which go back to the system when the chart is done. What stays
 * is the data, which is used each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { POINTS = 2 << 20, LAYERS = 10, LAYER = 1 << 20 };

static unsigned long chart(const int *points)
{
    unsigned char *layers[LAYERS];
    unsigned long sum = 0;
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = malloc(LAYER);
        memset(layers[i], i, LAYER);
    }
    for (int i = 0; i < POINTS; i += 3)
        layers[i % LAYERS][(unsigned)points[i] % LAYER]++;
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < LAYER; k += 64)
            sum += layers[i][k];
        free(layers[i]);
    }
    return sum;
}

int main(void)
{
    unsigned long sum = 0;
    int *points = malloc(POINTS * sizeof *points);
    for (int i = 0; i < POINTS; i++)
        points[i] = roll(1 << 30);
    for (int second = 0; second < 6; second++)
        sum += chart(points);
    printf("%lu\n", sum);
    free(points);
    return 0;
}
