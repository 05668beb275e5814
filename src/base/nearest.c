/* SPDX-License-Identifier: Apache-2.0 */

/* See nearest.h. The distance of Damerau and Levenshtein, in its restricted form. */

#include "base/nearest.h"

#include <string.h>

enum { NAME_MAX_LEN = 64, SHORT_WORD = 4, MOST_EDITS = 2 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t rows[3][NAME_MAX_LEN + 1];
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
        return NAME_MAX_LEN;
    for (size_t k = 0; k <= b_len; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t k = 1; k <= b_len; k++) {
            size_t other = a[i - 1] != b[k - 1];
            row[k] = least(least(above[k], row[k - 1]) + 1, above[k - 1] + other);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[k] = least(row[k], rows[(i - 2) % 3][k - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

void nearest_try(struct nearest *n, const char *name)
{
    size_t most = strlen(n->word) < SHORT_WORD ? MOST_EDITS - 1 : MOST_EDITS;
    size_t d = distance(n->word, name);
    if (d > most || (n->name && d >= n->distance))
        return;
    n->name = name;
    n->distance = d;
}
