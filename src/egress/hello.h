/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server name in the first bytes of a TLS connection. The bytes are the box's; egress peeks
 * at them and passes them on unchanged. */

#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HELLO_MAX = 5 + 16384 }; /* bytes to peek at: one TLS record */

enum hello_state {
    HELLO_MORE,       /* incomplete: look again when hello.need bytes are there */
    HELLO_NAMED,      /* hello.name is the name that the client asks for */
    HELLO_NAMELESS,   /* a hello without a server name */
    HELLO_NOT_TLS,    /* the first bytes are not a TLS record */
    HELLO_UNREADABLE, /* begins like TLS, but is not one complete, well-formed hello in one
                       * record */
};

struct hello {
    size_t need; /* HELLO_MORE: bytes to wait for, more than there are, at most HELLO_MAX */
    bool is_encrypted; /* it has an encrypted hello; `name` is the outer one. Browsers send a
                          meaningless one to every server. */
    char
        name[NETWORK_NAME]; /* lower case; letters, digits, '-', '_' and '.', else unreadable */
};

enum hello_state hello_read(struct hello *ret, const uint8_t *data, size_t len);
