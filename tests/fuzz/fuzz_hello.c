/* SPDX-License-Identifier: Apache-2.0 */

/* TLS hellos. A state, once it is not "more", stays the same whatever follows, and each shorter
 * piece of a readable hello asks for more. */

#include "egress/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hello whole, part;
    enum hello_state state = hello_read(&whole, data, size);
    check((state == HELLO_NAMED) == (whole.name[0] != '\0'));
    check(strnlen(whole.name, NETWORK_NAME) < NETWORK_NAME);
    check(strspn(whole.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == strlen(whole.name));
    if (state == HELLO_MORE)
        check(whole.need > size && whole.need <= HELLO_MAX);
    for (size_t len = 0; len < size && len < 64; len++) {
        uint8_t *copy = malloc(len + 1); /* so that a read behind the end is seen */
        memcpy(copy, data, len);
        enum hello_state before = hello_read(&part, copy, len);
        check(before == HELLO_MORE || before == state);
        free(copy);
    }
    return 0;
}
