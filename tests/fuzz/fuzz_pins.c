/* SPDX-License-Identifier: Apache-2.0 */

/* Pins under any order of calls. Each three bytes are one: what, the name, the address or the
 * passing of time. */

#include "egress/pins.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool has(const struct pins *p, const struct address *a, const char *name, uint64_t now)
{
    size_t at = 0;
    for (const char *found; (found = pins_next(p, a, now, &at)) != NULL;)
        if (strcmp(found, name) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pins p = {0};
    uint64_t now = 0;
    for (size_t i = 0; i + 3 <= size; i += 3) {
        char name[4] = {(char)('a' + data[i + 1] % 26), (char)('a' + data[i + 1] / 26),
            (char)('a' + data[i] % 8), '\0'};
        uint8_t v4[4] = {8, 8, 8, data[i + 2]};
        struct address a = address_v4(v4);
        if (data[i] & 0x80) {
            a = pins_stand_in(&p, name, now);
            check(pins_is_stand_in(&a));
            size_t at = 0;
            (void)pins_next(&p, &a, now, &at);
            check(pins_next(&p, &a, now, &at) == NULL); /* one name only */
        } else {
            pins_add(&p, &a, name, (uint32_t)data[i] << data[i + 2] % 24, now);
        }
        check(has(&p, &a, name, now) && p.count <= PINS_MAX);
        now += (uint64_t)data[i + 2] * 1000;
    }
    pins_done(&p);
    return 0;
}
