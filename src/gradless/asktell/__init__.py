"""The chain with the evaluation of the loss outside."""

from gradless.asktell.chain import AskTell, Point, Ticket

__all__ = ["AskTell", "Point", "Ticket"]
