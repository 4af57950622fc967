"""Twenty messages of customers, for a task that is run again and again."""

from __future__ import annotations

MESSAGES = (
    "Hi, this is Maria Lopez. I need 3 desk lamps delivered to Madrid by 5 March 2026, please.",
    "Order from Tom Becker: two office chairs to Hamburg, latest 12.04.2026.",
    "Could you send me a dozen notebooks? I'm in Lyon. Before May 1st, 2026. Claire Dubois",
    "Ken Sato here, one standing desk for our Osaka office, on the 20th of June 2026.",
    "We want 40 whiteboard markers in Dublin for the training on 2026-02-17. Regards, Aoife Byrne",
    "Anna Rossi, Torino: quattro lampade, I mean four lamps. End date 3 July 2026.",
    "Please ship 15 keyboards to Porto until 8/9/2026 (8 September). Joao Silva",
    "It's Priya Nair. Six monitors, Bengaluru, 30 January 2026. Thanks!",
    "To Oslo: 25 USB hubs. Needed on 14 October 2026. - Lars Berg",
    "I'd like to order 1 projector for Vienna, by the 2nd of November 2026. Eva Gruber",
    "Seven bookshelves for the library in Ghent, 19 August 2026, says Pieter Claes.",
    "Good morning, Olga Novak from Prague, 100 pens, date 6 May 2026.",
    "Hello! 5 headsets to Tallinn on 28 February 2026. My name is Mart Tamm.",
    "Send nine chairs to Athens for Nikos Pappas, no later than 11 December 2026.",
    "Sofia Lindgren wants 2 printers in Malmo, 23 March 2026.",
    "Eight desks, Krakow, 1 September 2026, for Jan Kowalski.",
    "This is Fatima Zahra in Rabat; I need 12 tablets on the 15th of April 2026.",
    "60 folders to Leeds by 7 June 2026. Emily Clark.",
    "Luca Meier, Basel. 3 scanners. 29 October 2026 is fine.",
    "For our Seoul branch: 10 webcams, 9 January 2026. Best, Min-jun Kim",
)
