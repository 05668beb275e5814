/* SPDX-License-Identifier: Apache-2.0 */

/* What a hostile place sends instead of the far shell's frames: bytes go only to their takers,
 * and no more bytes than came. */

#include "backend/relay.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void relay_event(const struct relay *r, struct spawn_event event)
{
    (void)r;
    if (event.kind != EVENT_EXITED)
        abort();
}

int relay_confirm(struct relay *r, uint64_t count)
{
    return count > r->to_base + r->to.len ? -1 : 0;
}

void relay_helper_drop(struct relay_helper *h)
{
    h->id = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct relay r;
    static int null = -1;
    int wait_fd, result = 0;
    if (null < 0)
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    memset(&r, 0, sizeof(r));
    r.out = r.err = r.channel = null;
    r.helpers[0] = (struct relay_helper){1, null};
    r.helpers[3] = (struct relay_helper){42, null};
    for (size_t at = 0; at < size && result == 0; at += r.piece_len) {
        r.piece_at = 0;
        r.piece_len = size - at < 37 ? size - at : 37;
        memcpy(r.piece, data + at, r.piece_len);
        result = relay_take(&r, &wait_fd);
        if (wait_fd >= 0 || r.piece_at > r.piece_len || r.head_len > RELAY_HEAD ||
            (result == 0 && r.piece_at != r.piece_len))
            abort();
    }
    return 0;
}
