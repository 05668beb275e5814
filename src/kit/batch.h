/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Netlink messages, built once and sent as they are. A batch is one send() with one or more
 * messages. What does not fit sets is_full, and such a batch is never sent. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCH_BYTES = 8192 };

struct batch {
    uint8_t bytes[BATCH_BYTES] __attribute__((aligned(4)));
    size_t len;
    size_t message; /* where the message begins that is being written */
    unsigned acks;  /* how many messages the kernel will confirm */
    bool is_full;
};

/* Begins a message with its fixed part. `flags` are NLM_F_ bits beside NLM_F_REQUEST. */
void batch_begin(
    struct batch *b, unsigned type, unsigned flags, const void *head, size_t head_size);
void batch_end(struct batch *b);

void batch_put(struct batch *b, unsigned type, const void *value, size_t size);
void batch_put_text(struct batch *b, unsigned type, const char *text);

/* Numbers in network order, as netfilter has them. */
void batch_put_be16(struct batch *b, unsigned type, uint16_t value);
void batch_put_be32(struct batch *b, unsigned type, uint32_t value);
void batch_put_be64(struct batch *b, unsigned type, uint64_t value);

/* An attribute with attributes in it; batch_close() takes what batch_open() returned. */
size_t batch_open(struct batch *b, unsigned type);
void batch_close(struct batch *b, size_t start);

/* Sends a batch and reads all answers: 0 when every message that wants a confirmation has one,
 * the first error that the kernel sent, or -EPROTO when confirmations are missing. The kernel
 * has answered when send() returns. */
int batch_send(int socket, const struct batch *b);

/* The same on a socket of its own. */
int batch_tell(int protocol, const struct batch *b);
