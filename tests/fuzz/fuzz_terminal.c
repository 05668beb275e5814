/* SPDX-License-Identifier: Apache-2.0 */

/* What a client of a terminal says beside frames: its key, lists in headers, messages. */

#include "base/alloc.h"
#include "base/cleanup.h"
#include "proto/websocket.h"
#include "session/terminal.h"

#include <stdint.h>
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
    struct terminal_size parsed = {0, 0};
    struct err err = {0};
    char accept[WEBSOCKET_ACCEPT] = "";
    cleanup_free char *text = xstrndup((const char *)data, size);

    int r = terminal_control_parse((const char *)data, size, &parsed, &err);
    check(r == 0 ? parsed.rows >= 1 && parsed.rows <= TERMINAL_SIDE_MAX && parsed.cols >= 1 &&
                       parsed.cols <= TERMINAL_SIDE_MAX
                 : parsed.rows == 0 && parsed.cols == 0 && err.message[0]);
    bool is_key = websocket_accept(text, accept);
    check(is_key ? strlen(accept) == WEBSOCKET_ACCEPT - 1 : accept[0] == '\0');
    if (websocket_has_word(text, "upgrade"))
        check(strcasestr(text, "upgrade") != NULL);
    return 0;
}
