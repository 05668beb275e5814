/* SPDX-License-Identifier: Apache-2.0 */

/* Identifiers that cannot be guessed and do not collide: knowing an id is part of the right to
 * use the object. Crockford's alphabet has no i, l, o, u, so an id can be read out over a
 * phone. */

#include "base/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ID_CHARS = 26, PREFIX_MAX = 12 };

_Static_assert(PREFIX_MAX + ID_CHARS + 1 <= ID_MAX, "an id fits its array");

void id_random(void *out, size_t len)
{
    char *p = out;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            abort();
        }
        p += n;
        len -= (size_t)n;
    }
}

void id_make(const char *prefix, char out[ID_MAX])
{
    static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned char random[ID_CHARS];
    size_t prefix_len = strlen(prefix);

    if (prefix_len > PREFIX_MAX)
        abort();
    id_random(random, sizeof(random));
    memcpy(out, prefix, prefix_len);
    for (size_t i = 0; i < ID_CHARS; i++)
        out[prefix_len + i] = alphabet[random[i] % 32];
    out[prefix_len + ID_CHARS] = '\0';
}
