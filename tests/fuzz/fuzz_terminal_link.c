/* SPDX-License-Identifier: Apache-2.0 */

/* What a hostile place sends about a terminal: the near end holds no more than a window, and
 * ends at the first message that breaks the rules. */

#include "proto/terminal_link.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct terminal_link l;
    char kind;
    uint32_t value;
    int r = 0;
    terminal_link_init(&l, -1, -1);
    l.unconfirmed = TERMINAL_WINDOW / 2;
    for (size_t at = 0; at < size && r >= 0;) {
        size_t len = size - at < 1000 ? size - at : 1000;
        if (buf_append(&l.in, data + at, len) < 0)
            break;
        at += len;
        while ((r = terminal_link_next(&l, &kind, &value)) == 1) {
            if (kind == TERMINAL_BYTES || kind == TERMINAL_TAKEN)
                abort();
        }
        if (l.bytes.len > TERMINAL_WINDOW || l.unconfirmed > TERMINAL_WINDOW / 2)
            abort();
    }
    buf_done(&l.in);
    buf_done(&l.out);
    buf_done(&l.bytes);
    return 0;
}
