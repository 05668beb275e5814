/* SPDX-License-Identifier: Apache-2.0 */

/* What code that found the channel of its session could write there: the reader stays within
 * the bytes and takes only frames that are whole and of a kind it knows. */

#include "session/channel.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct channel c;
    struct channel_frame frame;
    size_t taken = 0;
    int r;
    channel_init(&c, -1, NULL);
    if (buf_append(&c.in, data, size) == 0) {
        while ((r = channel_next(&c, &frame)) == 1) {
            taken += frame.len;
            if (frame.kind >= FRAME_KINDS || frame.len > CHANNEL_FRAME_MAX ||
                frame.data < c.in.data || frame.data + frame.len > c.in.data + c.in.len)
                abort();
        }
        if (taken > size || r > 0 || (r == 0 && c.in_at > c.in.len))
            abort();
        channel_rest(&c);
    }
    channel_done(&c);
    return 0;
}
