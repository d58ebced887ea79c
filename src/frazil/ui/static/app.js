document.title = "Frazil explorer";
