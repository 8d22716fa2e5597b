-- What was counted since the queue is there, in one row.
CREATE TABLE queue_totals (
    takeovers bigint NOT NULL                       -- sessions that were given to another worker because theirs had died
);
INSERT INTO queue_totals (takeovers) VALUES (0);
